"""Decoupled learning with information regularisation (DeInfoReg): variance, similarity and covariance of codes."""

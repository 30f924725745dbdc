"""An LSTM over sequences."""

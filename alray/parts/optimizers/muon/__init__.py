"""Muon: momentum whose matrices are orthogonalised (Jordan et al. 2024), as torch has it."""

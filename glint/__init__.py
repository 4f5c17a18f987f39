"""Glint: train a small byte-level language model, reward it by running its code, and ask what the numbers can claim."""

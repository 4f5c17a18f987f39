"""The decoder: primitives, attention, experts, residual streams, and their assembly.

Legend of shape suffixes, used in every module of this package:
N packed real tokens, R rows, T positions of a row, P shared prompt positions, D width, H heads, K head size,
E routed experts, F expert hidden width, S residual streams, L layers, V vocabulary, C slots of a decode cache.
"""

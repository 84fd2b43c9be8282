"""The house style as tests: what can be counted or read off a syntax tree is not left to taste."""

"""kvbudget: what a language model's deployment will do with a GPU's memory, before the GPU is rented."""

__version__ = "0.1.0"

"""Tests of ottla.transactions."""

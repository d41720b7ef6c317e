"""Contracts: what the simulation and the real API server must answer alike."""

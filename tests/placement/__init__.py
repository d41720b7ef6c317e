"""Tests of `placement`: tables and laws, no mocks."""

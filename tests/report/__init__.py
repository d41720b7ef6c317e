"""Tests of `report`: tables, no mocks."""

"""Frozen dataclasses, made fast: the same in every respect but the time."""

import dataclasses
import pickle

import pytest

from kube.fastfrozen import mint
from placement.model import Owner, Pod, ReplicaSet

OWNER = Owner("Deployment", "web", "u")


def test_what_is_minted_is_the_real_thing() -> None:
    """Equal, hashed and shown alike, with the same defaults; `replace` and `pickle` work."""
    minted, made = mint(Pod)("shop", name="a", owner=OWNER), Pod("shop", name="a", owner=OWNER)
    assert (minted, type(minted), repr(minted)) == (made, Pod, repr(made))
    assert minted.labels is made.labels
    assert dataclasses.replace(minted, name="b") == Pod("shop", "b", owner=OWNER)
    assert pickle.loads(pickle.dumps(minted)) == made


def test_what_is_minted_is_frozen() -> None:
    """Nobody can change what many share."""
    minted = mint(Pod)("shop", "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        minted.name = "b"  # type: ignore[misc]


def test_defaults_that_are_made_anew_are_made_anew() -> None:
    """No two share a dictionary that is not meant to be shared."""
    make = mint(ReplicaSet)
    assert make("shop", "a", "u", None, 1).selector is not make("shop", "b", "v", None, 1).selector


def test_what_has_no_default_must_be_given() -> None:
    """As by the class itself."""
    with pytest.raises(TypeError):
        mint(ReplicaSet)("shop")  # type: ignore[call-arg]

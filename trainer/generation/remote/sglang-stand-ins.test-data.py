"""Lets SGLang start on the processor: as `sitecustomize`, it replaces packages that SGLang imports and does not use there.

`sgl_kernel` has kernels for GPUs alone, and torchvision's wheel fits another build of torch. SGLang asks for pinned memory where
it handles adapters, which torch refuses on a machine without a GPU.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import torch

NAMES = ("sgl_kernel", "torchvision")
FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")


class Everything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Nothing(metaclass=Everything):
    pass


class StandIn(types.ModuleType):
    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def unpinned(make):
    return lambda *args, pin_memory=False, **settings: make(*args, **settings)


sys.meta_path.insert(0, Finder())
for factory in FACTORIES:
    setattr(torch, factory, unpinned(getattr(torch, factory)))
torch.Tensor.pin_memory = lambda self, *_: self

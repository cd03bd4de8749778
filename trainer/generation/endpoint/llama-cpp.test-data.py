"""llama-cpp-python's server, without the buffers of AMX: llama.cpp ends with a fault where a virtual machine names AMX and lacks it."""

import llama_cpp
from llama_cpp.server.__main__ import main

defaults = llama_cpp.llama_model_default_params


def without_extra_buffers():
    settings = defaults()
    settings.use_extra_bufts = False
    return settings


llama_cpp.llama_cpp.llama_model_default_params = without_extra_buffers
main()

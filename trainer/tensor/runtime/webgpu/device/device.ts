import { setTimeout as delay } from 'node:timers/promises';
import { create } from 'webgpu';
import { dump } from '../../dump.ts';
import type { Precision } from '../../runtime.ts';
import { messageOf, RuntimeError } from '../../runtime-error.ts';

/** Dawn's switches for float16 on NVIDIA drivers before 615.71, and for tensor cores. */
const DAWN_OPTIONS = ['enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia'];
const MEBIBYTE = 2 ** 20;
/** Settings that lower the memory of activations and of the cache. */
const WHAT_TO_LOWER = 'policy.micro_batch_tokens or rollout.concurrency';
/** Longest time between a failed command and the device's report that it is lost. */
const SETTLING_MS = 200;

/** The specification's bits, which are globals in browsers only. */
export const BUFFER_USAGE = {
  mapRead: 0x1,
  copySource: 0x4,
  copyTarget: 0x8,
  uniform: 0x40,
  storage: 0x80,
} as const;

/** Arrays that shaders read and write, and that we fill and read. */
export const ARRAY_USAGE = BUFFER_USAGE.storage | BUFFER_USAGE.copySource | BUFFER_USAGE.copyTarget;
export const MAP_READ = 1;

/** Options of a device. */
export interface DeviceOptions {
  /** Most bytes of an array that shaders may bind, where that is less than the device allows. */
  readonly largestBinding?: number;
}

/** Limits requested at the adapter's maximum. */
const WANTED_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
] as const;

/**
 * A GPU through Dawn, shared by all executables of a runtime. Errors outside of awaited calls are kept; the next {@link
 * check} throws them.
 */
export class GpuDevice {
  /** Vendor, name and driver. */
  readonly description: string;
  readonly device: GPUDevice;
  /** True if the GPU is a software renderer. */
  readonly software: boolean;
  /** Method of matrix multiplication. */
  readonly products: MatrixMultiplication;
  /** Most bytes of an array that a shader can bind. */
  readonly largestBinding: number;
  /** Keeps Dawn alive as long as the device. */
  readonly gpu: GPU;
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>();
  /** Bytes of arrays that live as long as the device, by purpose. */
  readonly #held = new Map<string, number>();
  #fault: string | null = null;
  #lost: string | null = null;
  #closed = false;

  private constructor(
    gpu: GPU,
    adapter: GPUAdapter,
    device: GPUDevice,
    products: MatrixMultiplication,
    { largestBinding = Infinity }: DeviceOptions,
  ) {
    const { vendor, device: name, description, architecture } = adapter.info;
    this.software = architecture === 'software' || adapter.info.isFallbackAdapter;
    this.gpu = gpu;
    this.device = device;
    this.products = products;
    this.largestBinding = Math.min(largestBinding, device.limits.maxStorageBufferBindingSize);
    this.description = `${vendor} ${[name, description].filter(Boolean).join(', ')}; ${describeProducts(products)}`;
    device.addEventListener('uncapturederror', event => {
      this.#fault ??= event.error.message;
    });
    void device.lost.then(({ reason, message }) => {
      if (!this.#closed) this.#lost = `${reason}: ${message}`;
    });
  }

  /**
   * @param precision of the factors of products, where the GPU offers it
   * @returns null where there is no GPU that Dawn can use
   */
  static async open(
    precision: Precision = 'float32',
    options: DeviceOptions = {},
  ): Promise<GpuDevice | null> {
    const gpu = create(precision === 'float32' ? [] : DAWN_OPTIONS);
    const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
    if (adapter === null) return null;
    const { features, info } = adapter;
    const traits = info as Omit<AdapterTraits, 'features'>;
    const { subgroupMinSize, subgroupMaxSize, subgroupMatrixConfigs } = traits;
    const products = chooseProducts(precision, {
      features,
      subgroupMinSize,
      subgroupMaxSize,
      subgroupMatrixConfigs,
    });
    const device = await adapter.requestDevice({
      requiredFeatures: featuresOf(products) as GPUFeatureName[],
      requiredLimits: Object.fromEntries(WANTED_LIMITS.map(name => [name, adapter.limits[name]])),
    });
    return new GpuDevice(gpu, adapter, device, products, options);
  }

  /** @throws RuntimeError if the device is lost, or rejected a command since the last check */
  check(): void {
    if (this.#lost !== null) {
      throw new RuntimeError(
        `the GPU was lost (${this.#lost}); if it ran out of memory, lower ${WHAT_TO_LOWER}`,
      );
    }
    if (this.#closed) throw new RuntimeError('the runtime was closed');
    const fault = this.#fault;
    this.#fault = null;
    if (fault !== null) throw new RuntimeError(`the GPU refused a command: ${fault}`);
  }

  /** Waits until {@link check} knows of a loss of the device, if there was one. */
  async settled(): Promise<void> {
    await Promise.race([this.device.lost, delay(SETTLING_MS)]);
  }

  /**
   * Compiles a shader, once for each text.
   * @throws RuntimeError with the compiler's message
   */
  pipeline(name: string, code: string): Promise<GPUComputePipeline> {
    const known = this.#pipelines.get(code);
    if (known !== undefined) return known;
    const pipeline = this.#compile(name, code);
    this.#pipelines.set(code, pipeline);
    return pipeline;
  }

  async #compile(name: string, code: string): Promise<GPUComputePipeline> {
    const { device } = this;
    dump('wgsl', name, () => code);
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ label: name, code });
    const refused = device.popErrorScope();
    const faults = (await module.getCompilationInfo()).messages.filter(({ type }) => type === 'error');
    await refused;
    if (faults.length > 0) {
      const lines = code.split('\n');
      const text = faults.map(({ message, lineNum }) => `${message}, in '${lines[lineNum - 1]?.trim()}'`);
      throw new RuntimeError(`the GPU refuses the shader '${name}': ${text.join('; ')}`);
    }
    const compute = { module, entryPoint: 'main' };
    return device.createComputePipelineAsync({ label: name, layout: 'auto', compute }).catch(cause => {
      throw new RuntimeError(`the GPU refuses the shader '${name}': ${messageOf(cause)}`, { cause });
    });
  }

  /**
   * Runs an allocation and waits for the device's result.
   * @param what purpose of the memory, for the error
   * @param lasting purpose among arrays that stay, for other errors; absent for temporary arrays
   * @throws RuntimeError that names the sizes when they do not fit
   */
  async allocating<T>(what: string, bytes: number, allocate: () => T, lasting?: string): Promise<T> {
    this.device.pushErrorScope('validation');
    this.device.pushErrorScope('out-of-memory');
    const result = allocate();
    const exhausted = await this.device.popErrorScope();
    const invalid = await this.device.popErrorScope();
    if (exhausted !== null) {
      throw new RuntimeError(
        `the GPU has no room for ${Math.ceil(bytes / MEBIBYTE)} MiB of ${what}${this.#listOfHeld()}: lower ${WHAT_TO_LOWER}, or use a smaller model (${exhausted.message})`,
      );
    }
    if (invalid !== null) throw new RuntimeError(`the GPU refuses ${what}: ${invalid.message}`);
    if (lasting !== undefined) this.#held.set(lasting, (this.#held.get(lasting) ?? 0) + bytes);
    return result;
  }

  #listOfHeld(): string {
    const list = [...this.#held].map(([what, bytes]) => `${shown(bytes)} of ${what}`);
    return list.length === 0 ? '' : ` next to ${list.join(', ')}`;
  }

  /** @throws RuntimeError when a shader cannot bind that much of an array */
  assertBindable(what: string, bytes: number): void {
    const most = this.largestBinding;
    if (bytes <= most) return;
    throw new RuntimeError(
      `${what} takes ${shown(bytes)} of an array, this GPU gives a shader at most ${shown(most)} in one piece: lower ${WHAT_TO_LOWER}, or use policy.runtime onnx`,
    );
  }

  /** @throws RuntimeError when the array is larger than any that the device can have */
  assertAllocatable(what: string, bytes: number): void {
    const most = this.device.limits.maxBufferSize;
    if (bytes <= most) return;
    throw new RuntimeError(
      `${what} takes ${shown(bytes)}, the largest array of this GPU is ${shown(most)}: lower ${WHAT_TO_LOWER}, or use policy.runtime onnx`,
    );
  }

  close(): void {
    this.#closed = true;
    this.device.destroy();
  }
}

function shown(bytes: number): string {
  return bytes < MEBIBYTE ? `${bytes} bytes` : `${Math.ceil(bytes / MEBIBYTE)} MiB`;
}

/** A device's method of matrix multiplication; sums are float32 always. */
export type MatrixMultiplication =
  /** Registers, in float32. */
  | { readonly kind: 'float32' }
  /** Registers, with factors rounded to float16 in shared memory. */
  | { readonly kind: 'float16' }
  /** Tensor cores: matrices of a subgroup, factors in float16. */
  | ({ readonly kind: 'subgroup' } & SubgroupShape);

/** A product of a subgroup's matrices: [rows, inner] by [inner, columns]. */
export interface SubgroupShape {
  readonly rows: number;
  readonly columns: number;
  readonly inner: number;
  /** Threads of a subgroup. */
  readonly threads: number;
}

export const FLOAT32_PRODUCTS: MatrixMultiplication = { kind: 'float32' };

/** Properties of an adapter that are known before a device is requested. */
export interface AdapterTraits {
  readonly features: { has(name: string): boolean };
  readonly subgroupMinSize?: number;
  readonly subgroupMaxSize?: number;
  readonly subgroupMatrixConfigs?: Iterable<{
    readonly componentType: string;
    readonly resultComponentType: string;
    readonly M: number;
    readonly N: number;
    readonly K: number;
  }>;
}

/** Square of a workgroup's results that the subgroups of `matrix-product.ts` share, and the depth of its strips. */
export const SUBGROUP_TILE = 32;

/** The fastest way to multiply that an adapter offers: tensor cores, float16 in registers, float32. */
export function chooseProducts(precision: Precision, adapter: AdapterTraits): MatrixMultiplication {
  const { features, subgroupMinSize, subgroupMaxSize = 0, subgroupMatrixConfigs = [] } = adapter;
  if (precision === 'float32' || !features.has('shader-f16')) return FLOAT32_PRODUCTS;
  const fits = (extent: number): boolean => SUBGROUP_TILE % extent === 0;
  const shape = [...subgroupMatrixConfigs].find(
    ({ componentType, resultComponentType, M, N, K }) =>
      componentType === 'f16' && resultComponentType === 'f32' && fits(M) && fits(N) && fits(K),
  );
  const matrices = features.has(SUBGROUP_MATRIX) && features.has('subgroups');
  if (!matrices || shape === undefined || subgroupMinSize !== subgroupMaxSize) return { kind: 'float16' };
  const { M, N, K } = shape;
  return { kind: 'subgroup', rows: M, columns: N, inner: K, threads: subgroupMaxSize };
}

export const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix';

/** Device features that the method of multiplication needs. */
function featuresOf({ kind }: MatrixMultiplication): string[] {
  if (kind === 'float32') return [];
  return kind === 'float16' ? ['shader-f16'] : ['shader-f16', 'subgroups', SUBGROUP_MATRIX];
}

/** Readable name of a method of multiplication. */
export function describeProducts(products: MatrixMultiplication): string {
  switch (products.kind) {
    case 'float32':
      return 'products in float32';
    case 'float16':
      return 'products of float16 factors, without tensor cores';
    case 'subgroup':
      return `tensor cores, ${products.rows} × ${products.inner} × ${products.columns} of float16`;
  }
}

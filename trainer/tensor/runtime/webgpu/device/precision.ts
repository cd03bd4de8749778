import type { Precision } from '../../runtime.ts';

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
export function featuresOf({ kind }: MatrixMultiplication): string[] {
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

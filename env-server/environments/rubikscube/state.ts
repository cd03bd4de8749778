import type { Cube } from './cube.ts';

export type RubiksCubeState = { readonly cube: Cube };

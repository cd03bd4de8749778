import * as attention from './attention.ts';
import * as blocks from './blocks.ts';
import * as device from './device.ts';
import * as elementwise from './elementwise.ts';
import * as movement from './movement.ts';
import type { Operation } from './operation.ts';
import * as products from './products.ts';
import * as reduction from './products.ts';

function isOperation(exported: unknown): exported is Operation {
  return typeof exported === 'object' && exported !== null && 'infer' in exported;
}

/**
 * Every primitive by name: the operations that the files of each kind export. A runtime lowers all of them, except that
 * it may lack those of `device.ts`. The contract suite runs all that a runtime has.
 */
export const operations: ReadonlyMap<string, Operation> = new Map(
  [elementwise, products, blocks, movement, reduction, attention, device]
    .flatMap((kind): unknown[] => Object.values(kind))
    .filter(isOperation)
    .map(operation => [operation.name, operation]),
);

import { InvalidArgumentError } from 'commander';

export interface NumberRange {
  readonly minimum?: number;
  readonly maximum?: number;
  readonly integer?: boolean;
}

export const PORT_RANGE = { maximum: 65_535, integer: true } as const;

/**
 * Parser of a command-line option with a number.
 * @throws InvalidArgumentError with the range, for anything else
 */
export const numberOption =
  ({ minimum = 0, maximum = Number.POSITIVE_INFINITY, integer = false }: NumberRange) =>
  (text: string): number => {
    const value = Number(text);
    const isInRange = text.trim() !== '' && value >= minimum && value <= maximum;
    if (isInRange && (!integer || Number.isInteger(value))) return value;
    const range =
      maximum < Number.POSITIVE_INFINITY ? `from ${minimum} to ${maximum}` : `of at least ${minimum}`;
    throw new InvalidArgumentError(`Expected ${integer ? 'an integer' : 'a number'} ${range}.`);
  };

/** Bytes of states that are allocated at a time, or one state where it is larger. */
const CHUNK_BYTES = 32_768;
const MAX_CHUNK_STATES_LOG2 = 12;
const FIRST_SLOTS = 2048;
/** Cells that two bytes number. */
const SHORT_CELLS = 2 ** 16;

type Numbers = Uint16Array | Uint32Array;

/**
 * The states that a search has met, in the order of their meeting, each once. They lie in typed arrays of a bounded
 * size: the player's cell and the cells of the boxes, ascending, and the number of the state each came from.
 */
export class KnownStates {
  /** A state to be added, or that was read. */
  readonly scratch: Numbers;
  readonly #width: number;
  readonly #shift: number;
  readonly #states: Numbers[] = [];
  readonly #parents: Int32Array[] = [];
  /** Numbers of states by hash, from 1; 0 is free. At most half of it is taken. */
  #slots = new Int32Array(FIRST_SLOTS);
  #count = 0;
  #bytesLeft: number;

  /** @param bytes what all arrays may take together */
  constructor(cells: number, boxes: number, bytes: number) {
    this.#width = boxes + 1;
    this.scratch = cells <= SHORT_CELLS ? new Uint16Array(this.#width) : new Uint32Array(this.#width);
    const states = CHUNK_BYTES / (this.scratch.byteLength + Int32Array.BYTES_PER_ELEMENT);
    this.#shift = Math.min(Math.max(Math.floor(Math.log2(states)), 0), MAX_CHUNK_STATES_LOG2);
    this.#bytesLeft = bytes - this.#slots.byteLength;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Adds the state in `scratch`, unless it is known.
   * @param parent number of the state that it came from, −1 for the first one
   * @returns false where there is no memory for it
   */
  add(parent: number): boolean {
    const slot = this.#slotOf(this.scratch);
    if (this.#slots[slot] !== 0) return true;
    const at = this.#count & this.#mask;
    if (at === 0 && !this.#grow()) return false;
    const chunk = this.#count >> this.#shift;
    this.#states[chunk].set(this.scratch, at * this.#width);
    this.#parents[chunk][at] = parent;
    this.#slots[slot] = ++this.#count;
    return 2 * this.#count <= this.#slots.length || this.#spread();
  }

  /** Puts a state into `scratch`. */
  read(number: number): void {
    const begin = (number & this.#mask) * this.#width;
    const chunk = this.#states[number >> this.#shift];
    for (let i = 0; i < this.#width; i++) this.scratch[i] = chunk[begin + i];
  }

  playerOf(number: number): number {
    return this.#states[number >> this.#shift][(number & this.#mask) * this.#width];
  }

  parentOf(number: number): number {
    return this.#parents[number >> this.#shift][number & this.#mask];
  }

  get #mask(): number {
    return (1 << this.#shift) - 1;
  }

  /** Takes memory for another chunk. */
  #grow(): boolean {
    const states = 1 << this.#shift;
    this.#bytesLeft -= states * (this.scratch.byteLength + Int32Array.BYTES_PER_ELEMENT);
    if (this.#bytesLeft < 0) return false;
    const Form = this.scratch instanceof Uint16Array ? Uint16Array : Uint32Array;
    this.#states.push(new Form(states * this.#width));
    this.#parents.push(new Int32Array(states));
    return true;
  }

  /** Takes twice as many slots; the former ones are given back first. */
  #spread(): boolean {
    this.#bytesLeft -= this.#slots.byteLength;
    if (this.#bytesLeft < 0) return false;
    const size = 2 * this.#slots.length;
    this.#slots = new Int32Array(0);
    this.#slots = new Int32Array(size);
    const state = this.scratch.slice();
    for (let number = 0; number < this.#count; number++) {
      this.read(number);
      let slot = hash(this.scratch) & (size - 1);
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (size - 1);
      this.#slots[slot] = number + 1;
    }
    this.scratch.set(state);
    return true;
  }

  /** The slot that holds a state, or would. */
  #slotOf(state: Numbers): number {
    const last = this.#slots.length - 1;
    let slot = hash(state) & last;
    for (let number = this.#slots[slot]; number !== 0; number = this.#slots[slot]) {
      if (this.#holds(number - 1, state)) return slot;
      slot = (slot + 1) & last;
    }
    return slot;
  }

  #holds(number: number, state: Numbers): boolean {
    const begin = (number & this.#mask) * this.#width;
    const chunk = this.#states[number >> this.#shift];
    for (let i = 0; i < state.length; i++) if (chunk[begin + i] !== state[i]) return false;
    return true;
  }
}

/** FNV-1a over the numbers, with its bits mixed (the end of MurmurHash3). */
function hash(state: Numbers): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < state.length; i++) value = Math.imul(value ^ state[i], 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

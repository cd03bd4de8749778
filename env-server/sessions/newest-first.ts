/** A member of the list, linked to its neighbors. */
export interface Ordered<T> {
  /** The next newer member. */
  newer: T | undefined;
  /** The next older member. */
  older: T | undefined;
}

/** Keeps members in order of arrival, so that the newest are found without a scan. */
export class NewestFirst<T extends Ordered<T>> {
  #newest: T | undefined;

  add(member: T): void {
    member.older = this.#newest;
    if (this.#newest) this.#newest.newer = member;
    this.#newest = member;
  }

  remove(member: T): void {
    const { newer, older } = member;
    if (newer) newer.older = older;
    else if (this.#newest === member) this.#newest = older;
    if (older) older.newer = newer;
    member.newer = undefined;
    member.older = undefined;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let member = this.#newest; member; member = member.older) yield member;
  }
}

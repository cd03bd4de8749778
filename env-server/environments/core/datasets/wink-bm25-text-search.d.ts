/** As much of the package as is used; it brings no types. */
declare module 'wink-bm25-text-search' {
  interface Engine {
    defineConfig(config: {
      fldWeights: { readonly [field: string]: number };
      bm25Params?: { readonly k1?: number; readonly b?: number; readonly k?: number };
    }): void;
    definePrepTasks(tasks: readonly ((text: string) => string[])[]): void;
    addDoc(document: { readonly [field: string]: string }, id: number): void;
    /** Ends the adding, of at least three documents. @param precision digits of a word's weight, 4 … 9 */
    consolidate(precision?: number): void;
    /** Ids, as texts, and scores, best first. */
    search(query: string, limit?: number): (readonly [id: string, score: number])[];
  }
  const bm25: () => Engine;
  export = bm25;
}

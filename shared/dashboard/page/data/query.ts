/** What a page asks for, by the names of the routes below `/runs/api/`. */
export type Query = { readonly [name: string]: string | number | undefined };

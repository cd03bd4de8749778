/** Parameters of a request, by the names of the routes below `/runs/api/`. */
export type Query = { readonly [name: string]: string | number | undefined };

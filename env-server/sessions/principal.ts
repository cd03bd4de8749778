/** Permissions of a token: play in sessions, register environments, see and close everything. */
export const SCOPES = ['play', 'register', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

/** The client of a request; sessions belong to their principal. */
export interface Principal {
  readonly name: string;
  readonly scopes: ReadonlySet<Scope>;
}

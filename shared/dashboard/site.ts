/** Where the parts of the site are, as `/runs/site.json` says it; null for a part that is missing. */
export interface SiteAddresses {
  /** The environment server's pages, ending in a slash. */
  readonly server: string | null;
  /** What requests to the environment server begin with, ending in a slash: `<api>v1/sessions`. */
  readonly api: string | null;
  /** What commands of the trainer begin with for the reader of the pages. */
  readonly trainer: string;
  /** The data lies in files next to the page. */
  readonly exported?: true;
}

/** A user name or password in an address within a text. No quote is part of one, so JSON stays JSON. */
const CREDENTIALS = /:\/\/[^\s/?#"]*@/g;

/** True for an address such as `http://user:password@host`; requests leave these out. */
export const hasCredentials = (url: string): boolean => withoutCredentials(url) !== url;

/** A text with `***` in place of the user names and passwords of its addresses. */
export const withoutCredentials = (text: string): string => text.replace(CREDENTIALS, '://***@');

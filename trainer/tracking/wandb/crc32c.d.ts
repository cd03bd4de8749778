/** CRC-32C (RFC 3720) of bytes as a signed 32-bit integer; the package declares its main entry only. */
declare module 'crc-32/crc32c.js' {
  const crc32c: Pick<typeof import('crc-32'), 'buf'>;
  export = crc32c;
}

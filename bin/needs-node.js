/**
 * Loaded before the programs of the repository: an older Node cannot read their TypeScript, and would fail with a stack of
 * calls; one that can keeps the modules it compiles.
 */
const NEEDED = 24;

if (Number.parseInt(process.versions.node, 10) < NEEDED) {
  console.error(
    `This Node is ${process.version}, and ragen needs ${NEEDED}: npm install brings it along (without --ignore-scripts), or install Node ${NEEDED}`,
  );
  process.exit(1);
}
// Old versions do not have what it imports.
const { keepCompiledModules } = await import('./compile-cache.js');
keepCompiledModules();

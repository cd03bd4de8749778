import { enableCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/**
 * Preloaded into every test by `.taprc`: compiled modules are kept, as most of a short test's time goes into stripping and
 * compiling what it imports. The processes that tests start inherit it.
 */
const folder = fileURLToPath(new URL('../node_modules/.cache/compiled', import.meta.url));
enableCompileCache(folder);
process.env.NODE_COMPILE_CACHE = folder;

// The runner hands its record of loaded modules, which `npm test` has off, to every process that a test starts.
if (process.env._TAPJS_PROCESSINFO_EXCLUDE_ === '/./') delete process.env.NODE_OPTIONS;

// The runner turns source maps on. TypeScript keeps its lines and columns here, and reading the maps of packages is a
// fifteenth of a test's processor time.
process.setSourceMapsEnabled(false);
process.setSourceMapsEnabled = () => {};

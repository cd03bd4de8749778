import t from 'tap';
import { unasync } from './python-modules.ts';

t.test('code for asyncio becomes code for threads, names and comments with it', async t => {
  const source = `"""One attempt, for asyncio."""

from .async_runtime import Lock


class AsyncThing(_AsyncPart):
    async def __aenter__(self) -> AsyncThing:
        async with self._lock:
            return await self.ask(await self.client.aclose())
`;
  t.equal(
    unasync(source),
    `"""One attempt, for threads."""

from .sync_runtime import Lock


class SyncThing(_SyncPart):
    def __enter__(self) -> SyncThing:
        with self._lock:
            return self.ask(self.client.close())
`,
  );
});

t.test('what would stay code for asyncio is named', async t => {
  for (const line of ['asyncio.sleep(1)', 'await(reply)', '# each coroutine', 'async  def x(): ...']) {
    t.throws(() => unasync(`import time\n\n${line}\n`), { message: line }, line);
  }
});

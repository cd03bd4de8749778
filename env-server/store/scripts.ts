import { AUDIT_KEPT } from '../persistence/environment-rows.ts';

/**
 * The scripts that run in Valkey; `ARGV[1]` is the prefix of all keys. A session is a stream `s:<id>` with entry ids
 * `<epoch>-<n>`. Valkey takes only growing ids, so `XADD` itself keeps a server out that another one has followed. Scripts
 * that free memory may run in a full store (`allow-oom`).
 *
 * | key | type | content |
 * |---|---|---|
 * | `s:<id>` | stream | records of a session: `k` the kind, `b` the body |
 * | `p:<id>` | hash | settings, ttl, owner, environment, group, edition, era, pinned, and the parts `<kind>:<number>` |
 * | `g:<id>` | string | how a session ended; expires |
 * | `due` | sorted set | ids by the time they expire, in milliseconds of the store's clock |
 * | `seen`, `back` | strings | when the store last heard of any server; when it did again after none could use it; milliseconds |
 * | `all`, `o:<owner>`, `e:<environment>` | sorted sets | ids by serial |
 * | `k:<owner>:<hash>` | string | reply to a request that concerns no session yet; expires |
 * | `r:<replica>` | string | a server that is alive; expires |
 * | `env`, `envrev`, `audit` | hash, counter, stream | custom environments, their revision, the audit log |
 * | `era` | hash | which process of the store this is, and how many there were |
 */

/**
 * Milliseconds without any server after which sessions get their whole idle time again, because no client could use
 * them.
 */
const UNSERVED_MS = 3000;
/** The same when a server connects: others would have been seen a second ago. */
const UNSERVED_AT_CONNECT_MS = 1500;

/** A take begins the idle time again, which leaves the server at least this long to report later uses. */
const TAKEN_MS = 5000;

/** The store's clock, in milliseconds. */
const TIME = `
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end`;

/** Records that a server is alive. */
const SEEN = `${TIME}
local function seen(p, unserved)
  local time = clock()
  if time - (tonumber(redis.call('GET', p .. 'seen')) or time) >= unserved then redis.call('SET', p .. 'back', time) end
  redis.call('SET', p .. 'seen', time)
end`;

/** Checks if a session expires now. One that clients could not use for a while gets its whole idle time again. */
const DUE = `${TIME}
local function is_due(p, id)
  local time, due = clock(), tonumber(redis.call('ZSCORE', p .. 'due', id) or math.huge)
  if due > time then return false end
  local back = tonumber(redis.call('GET', p .. 'back')) or 0
  if time - (tonumber(redis.call('GET', p .. 'seen')) or time) >= ${UNSERVED_MS} then back = time end
  local again = back + (tonumber(redis.call('HGET', p .. 'p:' .. id, 'ttl')) or 0)
  if again <= time then return true end
  redis.call('ZADD', p .. 'due', again, id)
  return false
end`;

/** Ends one session: `forget` milliseconds later its id is unknown. */
const FINISH = `
local function finish(p, id, tombstone, forget)
  local owner, env = unpack(redis.call('HMGET', p .. 'p:' .. id, 'owner', 'environment'))
  redis.call('ZREM', p .. 'due', id)
  if redis.call('ZREM', p .. 'all', id) == 0 then return false end
  redis.call('UNLINK', p .. 's:' .. id, p .. 'p:' .. id)
  if owner then redis.call('ZREM', p .. 'o:' .. owner, id) end
  if env then redis.call('ZREM', p .. 'e:' .. env, id) end
  if tonumber(forget) >= 1 then redis.call('SET', p .. 'g:' .. id, tombstone, 'PX', forget) end
  return true
end`;

/**
 * Owner, environment, three limits, count, request key, what to keep under it and how long; then for each session: id,
 * serial, settings, edition, group, pinned, ttl, record. Opens nothing where something is kept under the key already,
 * and returns that.
 */
const OPEN = `#!lua
${TIME}
local p, owner, env, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[7])
local key = ARGV[8] ~= '' and p .. 'k:' .. owner .. ':' .. ARGV[8]
local known = key and redis.call('GET', key)
if known then return { -1, known } end
for i, key in ipairs({ 'all', 'o:' .. owner, 'e:' .. env }) do
  local open = redis.call('ZCARD', p .. key)
  if open + count > tonumber(ARGV[3 + i]) then return { i, open } end
end
local time, era = clock(), redis.call('HGET', p .. 'era', 'n') or '0'
for i = 0, count - 1 do
  local a = 11 + 8 * i
  local id, serial = ARGV[a], ARGV[a + 1]
  redis.call('HSET', p .. 'p:' .. id, 'settings', ARGV[a + 2], 'edition', ARGV[a + 3], 'group', ARGV[a + 4], 'pinned',
    ARGV[a + 5], 'owner', owner, 'environment', env, 'era', era, 'ttl', ARGV[a + 6])
  redis.call('XADD', p .. 's:' .. id, '1-1', 'k', 'o', 'b', ARGV[a + 7])
  redis.call('ZADD', p .. 'due', time + ARGV[a + 6], id)
  for _, key in ipairs({ 'all', 'o:' .. owner, 'e:' .. env }) do redis.call('ZADD', p .. key, serial, id) end
end
if key then redis.call('SET', key, ARGV[9], 'PX', ARGV[10]) end
return { 0, 0 }`;

/**
 * Records of a turn of the event loop, each as session, id, kind and body separated by spaces: the number of arguments
 * determines the cost of a record. Returns the indices of rejected records, each with 0 (gone) or -1 (fenced).
 */
const APPEND = `#!lua
local out = {}
local add, match, streams = redis.pcall, string.match, ARGV[1] .. 's:'
for i = 2, #ARGV do
  local session, id, kind, body = match(ARGV[i], '^(%S+) (%S+) (%S) (.*)$')
  local r = add('XADD', streams .. session, 'NOMKSTREAM', id, 'k', kind, 'b', body)
  if r == false then
    out[#out + 1] = i - 2
    out[#out + 1] = 0
  elseif type(r) == 'table' and r.err then
    if not string.find(r.err, 'equal or smaller', 1, true) then return redis.error_reply(r.err) end
    out[#out + 1] = i - 2
    out[#out + 1] = -1
  end
end
return out`;

/** Ids of the newest records; empty for sessions that ended. */
const TOPS = `#!lua flags=no-writes
local out = {}
for i = 2, #ARGV do
  local top = redis.call('XREVRANGE', ARGV[1] .. 's:' .. ARGV[i], '+', '-', 'COUNT', 1)
  out[#out + 1] = top[1] and top[1][1] or ''
end
return out`;

/**
 * Session, replica, newest known id (empty: none), owner (empty: an administrator), forget. Returns the state and what
 * the server lacks.
 */
const TAKE = `#!lua flags=allow-oom
${DUE}
${FINISH}
local p, id, replica, known, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local top = redis.call('XREVRANGE', p .. 's:' .. id, '+', '-', 'COUNT', 1)
if #top == 0 then return { 'ended', redis.call('GET', p .. 'g:' .. id) or '' } end
local own, pinned, ttl = unpack(redis.call('HMGET', p .. 'p:' .. id, 'owner', 'pinned', 'ttl'))
if owner ~= '' and own ~= owner then return { 'ended', '' } end
if is_due(p, id) then
  local tombstone = cjson.encode({ owner = own, ending = 'session_expired' })
  finish(p, id, tombstone, ARGV[6])
  return { 'ended', tombstone }
end
if pinned ~= '' and pinned ~= replica then
  if redis.call('EXISTS', p .. 'r:' .. pinned) == 1 then return { 'elsewhere' } end
  local tombstone = cjson.encode({ owner = own, ending = 'session_lost', reason = 'the server that kept it ended, and its environment holds more than its state' })
  finish(p, id, tombstone, ARGV[6])
  return { 'ended', tombstone }
end
redis.call('ZADD', p .. 'due', 'XX', 'GT', clock() + math.max(${TAKEN_MS}, ttl or 0), id)
local last = top[1][1]
local epoch = tonumber(string.match(last, '^(%d+)-')) + 1
redis.call('XADD', p .. 's:' .. id, epoch .. '-0', 'k', 'T', 'b', replica)
local era = redis.call('HGET', p .. 'era', 'n')
if last == known then
  redis.call('HSET', p .. 'p:' .. id, 'era', era)
  return { 'same', epoch, era }
end
return { 'load', epoch, era, redis.call('HGETALL', p .. 'p:' .. id), redis.call('XRANGE', p .. 's:' .. id, '-', '+') }`;

/** Reads a session without becoming its writer. */
const PEEK = `#!lua flags=no-writes
local p, id = ARGV[1], ARGV[2]
local records = redis.call('XRANGE', p .. 's:' .. id, '-', '+')
if #records == 0 then return { 'ended', redis.call('GET', p .. 'g:' .. id) or '' } end
return { 'load', 0, redis.call('HGET', p .. 'era', 'n'), redis.call('HGETALL', p .. 'p:' .. id), records }`;

/** Session, id, head, number of new parts, fields and values, then fields to remove. */
const CHECKPOINT = `#!lua
local p, id = ARGV[1], ARGV[2]
local r = redis.pcall('XADD', p .. 's:' .. id, 'NOMKSTREAM', 'MINID', '=', ARGV[3], ARGV[3], 'k', 'C', 'b', ARGV[4])
if type(r) == 'table' and r.err then
  if not string.find(r.err, 'equal or smaller', 1, true) then return redis.error_reply(r.err) end
  return -1
end
if r == false then return 0 end
local parts = tonumber(ARGV[5])
redis.call('HSET', p .. 'p:' .. id, 'era', redis.call('HGET', p .. 'era', 'n'))
for i = 6, 5 + 2 * parts, 2 do redis.call('HSET', p .. 'p:' .. id, ARGV[i], ARGV[i + 1]) end
for i = 6 + 2 * parts, #ARGV do redis.call('HDEL', p .. 'p:' .. id, ARGV[i]) end
return 1`;

/** Session, epoch (empty: any writer), tombstone, forget. */
const END = `#!lua flags=allow-oom
${FINISH}
local p, id, epoch = ARGV[1], ARGV[2], ARGV[3]
local top = redis.call('XREVRANGE', p .. 's:' .. id, '+', '-', 'COUNT', 1)
if #top == 0 then return 0 end
if epoch ~= '' and string.match(top[1][1], '^(%d+)-') ~= epoch then return -1 end
finish(p, id, ARGV[4], ARGV[5])
return 1`;

/** Ends due sessions: at most this many; forget. Returns their ids, and how many it examined. */
const EXPIRE = `#!lua flags=allow-oom
${DUE}
${FINISH}
local p = ARGV[1]
local found = redis.call('ZRANGEBYSCORE', p .. 'due', '-inf', clock(), 'LIMIT', 0, ARGV[2])
local ended = {}
for _, id in ipairs(found) do
  if is_due(p, id) then
    local tombstone = cjson.encode({ owner = redis.call('HGET', p .. 'p:' .. id, 'owner'), ending = 'session_expired' })
    finish(p, id, tombstone, ARGV[3])
    ended[#ended + 1] = id
  end
end
return { ended, #found }`;

/** Replica, seconds for which it counts as alive. */
const LIVE = `#!lua flags=allow-oom
${SEEN}
seen(ARGV[1], ${UNSERVED_MS})
redis.call('SET', ARGV[1] .. 'r:' .. ARGV[2], '1', 'EX', ARGV[3])
return 0`;

/** Pairs of session and milliseconds until it expires. Never shortens the time. */
const TOUCH = `#!lua flags=allow-oom
${TIME}
local time = clock()
for i = 2, #ARGV, 2 do redis.call('ZADD', ARGV[1] .. 'due', 'XX', 'GT', time + ARGV[i + 1], ARGV[i]) end
return 0`;

/**
 * Environment, its JSON (empty: removed), whether it must be new, entry of the audit log. Returns the revision, or -1.
 */
const PUT_ENVIRONMENT = `#!lua
local p, id = ARGV[1], ARGV[2]
if ARGV[4] == '1' and redis.call('HEXISTS', p .. 'env', id) == 1 then return -1 end
if ARGV[3] == '' then redis.call('HDEL', p .. 'env', id) else redis.call('HSET', p .. 'env', id, ARGV[3]) end
redis.call('XADD', p .. 'audit', 'MAXLEN', '~', ${AUDIT_KEPT}, '*', 'e', ARGV[5])
return redis.call('INCR', p .. 'envrev')`;

/**
 * Key of a reply, the reply that it replaces (empty: none), the new one, how long it is kept. Returns a different
 * existing one.
 */
const REPLACE_REPLY = `#!lua
local key = ARGV[1] .. ARGV[2]
local known = redis.call('GET', key)
if known and known ~= ARGV[3] then return known end
redis.call('SET', key, ARGV[4], 'PX', ARGV[5])
return false`;

/**
 * Id of the store's process: a new one begins an era. Called when a server connects. Returns the era, and a number for
 * this replica.
 */
const ERA = `#!lua flags=allow-oom
${SEEN}
local p = ARGV[1]
seen(p, ${UNSERVED_AT_CONNECT_MS})
if redis.call('HGET', p .. 'era', 'run') ~= ARGV[2] then
  redis.call('HINCRBY', p .. 'era', 'n', 1)
  redis.call('HSET', p .. 'era', 'run', ARGV[2])
end
return { redis.call('HGET', p .. 'era', 'n'), redis.call('INCR', p .. 'replicas') }`;

export const SCRIPTS = {
  ragenOpen: OPEN,
  ragenAppend: APPEND,
  ragenTops: TOPS,
  ragenTake: TAKE,
  ragenPeek: PEEK,
  ragenCheckpoint: CHECKPOINT,
  ragenEnd: END,
  ragenExpire: EXPIRE,
  ragenLive: LIVE,
  ragenTouch: TOUCH,
  ragenPutEnvironment: PUT_ENVIRONMENT,
  ragenReplaceReply: REPLACE_REPLY,
  ragenEra: ERA,
} as const;

export type ScriptName = keyof typeof SCRIPTS;

/** An episode that the trainer gives a program: addresses and keys. */
export interface Episode {
  readonly OPENAI_BASE_URL: string;
  readonly OPENAI_API_KEY: string;
  readonly RAGEN_SESSION_URL: string;
  readonly RAGEN_SESSION_TOKEN: string;
  /** JSON. */
  readonly RAGEN_TASK: string;
}

export interface StepResult {
  readonly observation: string;
  readonly terminated: boolean;
  readonly truncated: boolean;
}

/** @throws Error where the reply is a refusal */
async function post<T>(url: string, token: string | undefined, body: object): Promise<T | undefined> {
  const reply = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(text);
  return text === '' ? undefined : (JSON.parse(text) as T);
}

export async function step(episode: Episode, action: string): Promise<StepResult> {
  const { RAGEN_SESSION_URL: url, RAGEN_SESSION_TOKEN: token } = episode;
  return (await post<StepResult>(`${url}/step`, token, { action }))!;
}

/** Plays the episode in this program's variables, or one after the other where the program stays. */
export async function playEpisodes(play: (episode: Episode) => Promise<void>): Promise<void> {
  const { RAGEN_GATEWAY_URL: gateway, RAGEN_WORKER_TOKEN: token } = process.env;
  if (gateway === undefined) return play(process.env as unknown as Episode);
  for (;;) {
    const episode = await post<Episode & { readonly id: string }>(`${gateway}/rollouts/next`, token, {});
    if (!episode) continue;
    let verdict = {};
    try {
      await play(episode);
    } catch (error) {
      verdict = { error: String(error) };
    }
    await post(`${gateway}/rollouts/${episode.id}/finish`, token, verdict);
  }
}

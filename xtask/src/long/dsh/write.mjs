// Writes a fresh DSH home with DSH's published packages, and prints what should be read back.
//   write.mjs HOME zstd|none
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Context } from '@deepseek-ai/cordis';
import { SessionStore } from '@deepseek-ai/dsh-session';
import { JsonlSessionPersistence } from '@deepseek-ai/dsh-session-persistence-jsonl';
import { LocalAttachmentStore } from '@deepseek-ai/dsh-attachment-local';
import sharp from 'sharp';

const [home, compression] = process.argv.slice(2);
const context = new Context();
await context.plugin(SessionStore);
await context.plugin(JsonlSessionPersistence, { root: join(home, 'sessions'), compression });
await context.plugin(LocalAttachmentStore, { dshHome: home });

const image = async (width, height, format, name) => {
  const background = { r: width, g: height, b: 9 };
  const pixels = sharp({ create: { width, height, channels: 3, background } });
  const data = await pixels.toFormat(format).toBuffer();
  return context.attachments.saveImage({ data, mediaType: `image/${format}`, name });
};

const written = [];
for (const [number, [id, cwd]] of [
  ['session-plain', '/workspaces/demo'],
  ['子会话/../x y~1', '/workspaces/报告 β'],
  ['no-cwd', undefined],
].entries()) {
  const meta = { cwd, delegationDepth: 0, createdAt: 1_790_000_000_000 + number };
  const session = context.sessions.create(id, { meta });
  const images = [
    await image(3 + number, 5, 'png', `图 ${number}.png`),
    await image(7, 11 + number, 'webp'),
  ];
  for (let turn = 1; turn <= 3; turn += 1) {
    session.append('turn/start', { turn });
    session.append('step/start', { turn, step: 1 });
    const content = [{ type: 'text', text: `turn ${turn} of ${id}` }];
    if (turn < 3) content.push({ type: 'image', attachment: images[turn - 1] });
    const user = { id: `u${turn}`, role: 'user', content, source: { kind: 'user' } };
    session.append('user/message', user, { surfaceOp: 'append' });
    // A run of deltas, which goes into one packed row.
    for (const text of ['a', '好', '"quoted"', '\n', 'e']) {
      const chunk = { type: 'text-delta', index: 0, text };
      session.append('assistant/chunk', { turn, step: 1, chunk });
    }
    session.append('step/end', { turn, step: 1 });
    session.append('turn/end', { turn, reason: 'completed' });
    // Each turn is a batch, and a frame, of its own.
    await sleep(400);
  }
  written.push({
    id,
    cwd,
    createdAt: session.header.createdAt,
    events: session.events.map(({ type, seq, time, data }) => ({ type, seq, time, data })),
    images,
  });
}
await context.fiber.dispose?.();
process.stdout.write(JSON.stringify(written), () => process.exit(0));

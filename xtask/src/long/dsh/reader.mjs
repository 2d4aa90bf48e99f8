// The published local file system of DSH as a control: a program that answers with what it read, and
// stops at the reader's own test hook between its check and its open.
//   reader.mjs ROOT PATH CEILING
import { readSync, writeSync } from 'node:fs';
import { Context } from '@deepseek-ai/cordis';
import { LocalFileSystem } from '@deepseek-ai/dsh-fs-local';

const [root, path, ceiling] = process.argv.slice(2);
const refuse = (why) => {
  writeSync(2, `fsprobe-refused ${why}\n`);
  process.exit(1);
};

const context = new Context();
const fs = new LocalFileSystem(context, { cwd: root, diffBasisMaxBytes: 1 << 20 });
fs.internals.inspectReadBytesAfterStat = () => {
  writeSync(2, 'fsprobe-step checked\n');
  readSync(0, Buffer.alloc(1));
};
try {
  // As the workspace service does before it reads: a link that is there already is refused.
  const there = await fs.lstat(path, { cwd: root });
  if (there?.kind === 'symlink' || there?.type === 'symlink') refuse('SYMLINK');
  const target = await fs.resolve(path, { cwd: root });
  const bytes = await fs.readBytes(target, undefined, Number(ceiling));
  let at = 0;
  while (at < bytes.length) at += writeSync(1, bytes, at);
  process.exit(0);
} catch (error) {
  refuse(error?.code ?? error?.message ?? 'FAILED');
}

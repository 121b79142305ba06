/** The tarball of this checkout, as `npm pack` makes it. Needs the registry of npm for what the tarball does not bundle. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const execute = promisify(execFile)

/** Runs npm or npx without the settings that an npm script around this test sets. Rejects if the program fails. */
export function npm(args: string[], cwd: string, env: Record<string, string> = {}, program = 'npm') {
  const { PATH = '', HOME = '' } = process.env
  return execute(program, args, { cwd, env: { PATH, HOME, ...env }, maxBuffer: 16 * 2 ** 20 })
}

/**
 * Returns the path of the tarball. `prepare` is left out, because it would build dist/ again while other tests run it; the other scripts of
 * `npm pack` run one by one.
 */
export async function packTarball(directory: string): Promise<string> {
  await npm(['run', 'prepack'], ROOT)
  try {
    const { stdout } = await npm(
      ['pack', '--ignore-scripts', '--json', '--pack-destination', directory],
      ROOT,
    )
    const packed = JSON.parse(stdout) as Array<{ filename: string }> | Record<string, { filename: string }>
    return join(directory, String(Object.values(packed)[0]?.filename))
  } finally {
    await npm(['run', 'postpack'], ROOT)
  }
}

/** The files of the tarball in `directory`, as the installation page unpacks them. */
export async function unpackTarball(tarball: string, directory: string): Promise<void> {
  await execute('tar', ['-xzf', tarball, '--strip-components=1', '-C', directory])
}

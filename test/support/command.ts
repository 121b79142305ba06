/** Commands of `oa-audience` in this process, which takes milliseconds instead of a start. `serve` and signals need process.ts. */
import { Readable, Writable } from 'node:stream'
import { expect } from 'vitest'
import type { Io } from '../../src/cli/io.ts'
import { run } from '../../src/cli/run.ts'
import { environment } from './process.ts'

class Collector extends Writable {
  readonly #chunks: Buffer[] = []

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#chunks.push(chunk)
    done()
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString()
  }
}

/** Resolves when the command has ended. @param isTTY whether the input claims to be a terminal */
export async function runCommand(
  args: string[],
  env: Record<string, string> = {},
  { input = '', isTTY = false } = {},
): Promise<{ status: number; stdout: string; stderr: string }> {
  const [stdout, stderr] = [new Collector(), new Collector()]
  const stdin = Object.assign(Readable.from([Buffer.from(input)], { objectMode: false }), { isTTY })
  const io: Io = { env: environment(env), stdin, stdout, stderr }
  await run(args, io)
  return { status: Number(io.exitCode ?? 0), stdout: stdout.text(), stderr: stderr.text() }
}

/** What a command that succeeds prints with --json. */
export async function runJson(args: string[], env: Record<string, string>) {
  const { status, stdout, stderr } = await runCommand([...args, '--json'], env)
  expect(status, stderr).toBe(0)
  return JSON.parse(stdout)
}

/** What `doctor` finds. */
export async function findingsOf(
  env: Record<string, string>,
): Promise<Array<{ check: string; severity: string; message: string }>> {
  const { stdout } = await runCommand(['doctor', '--json'], env)
  return JSON.parse(stdout)
}

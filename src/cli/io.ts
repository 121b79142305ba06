/** What a command reads and writes, apart from the database. */
export interface Io {
  env: Record<string, string | undefined>
  stdin: NodeJS.ReadableStream & { isTTY?: boolean }
  stdout: NodeJS.WritableStream & { isTTY?: boolean }
  stderr: NodeJS.WritableStream & { isTTY?: boolean }
  /** 1: the command failed, or its answer is no */
  exitCode?: NodeJS.Process['exitCode']
}

/** Those of this process. Tests run commands in their own process, one at a time, and replace them. */
export let io: Io = process

export function useIo(replacement: Io): void {
  io = replacement
}

/** Writes one line, or several with line feeds, to standard output. */
export function print(text = ''): void {
  io.stdout.write(`${text}\n`)
}

/** The same to standard error. */
export function printError(text: string): void {
  io.stderr.write(`${text}\n`)
}

/** Lines that libraries and Node write to the console, as log lines. Every line of a running service is JSON. */
import { format } from 'node:util'
import type { Logger } from 'pino'

const METHODS = ['debug', 'log', 'info', 'warn', 'error'] as const

/** ioredis warns of a superfluous password, Node of leaks. @returns ends the redirection, before the command line prints a fault */
export function logConsoleLines(log: Pick<Logger, 'warn'>): () => void {
  const originals = METHODS.map((method) => [method, console[method]] as const)
  for (const method of METHODS) console[method] = (...parts: unknown[]) => log.warn(format(...parts))
  const defaults = process.listeners('warning')
  const warn = ({ name, message }: Error) => log.warn({ fault: name }, message)
  process.removeAllListeners('warning').on('warning', warn)
  return () => {
    for (const [method, original] of originals) console[method] = original
    process.removeListener('warning', warn)
    for (const listener of defaults) process.on('warning', listener)
  }
}

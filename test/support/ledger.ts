/** What operators do with ERASURE_LEDGER. */
import { readConfig } from '../../src/config/config.ts'
import { startService } from '../../src/main.ts'
import { findingsOf, runCommand } from './command.ts'

/** @param directory of the ledger */
export function operateLedger(env: Record<string, string>, directory: string) {
  const variables = { ...env, ERASURE_LEDGER: directory, PORT: '0', LOG_LEVEL: 'silent' }
  return {
    erasures: async (command: 'reapply' | 'status') => {
      const { status, stdout, stderr } = await runCommand(['erasures', command, '--json'], variables)
      return { status, stderr, json: status === 0 ? JSON.parse(stdout) : null }
    },
    /** Resolves when the service was ready, and rejects with the reason why it is not. */
    start: async () => {
      const service = await startService(readConfig(variables))
      await service.ready.finally(() => service.close())
    },
    /** What doctor says of the ledger. */
    doctor: async () => {
      const findings = await findingsOf(variables)
      return findings
        .filter(({ check }) => /ledger/i.test(check))
        .map(({ severity, message }) => `${severity}: ${message}`)
    },
  }
}

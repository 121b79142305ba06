import { defineConfig } from 'vitest/config'
import base from './vitest.config.ts'

/** They measure, or take most of the machine, so each runs alone. The results of all others do not depend on what else runs. */
const ALONE = `
  body-memory console-load endpoints endpoints-names image many-endpoints overload shares
  tracking-flood
`
  .trim()
  .split(/\s+/)
  .map((name) => `test/faults/${name}.test.ts`)

/** They stop servers and fill the machine, so what they wait for takes longer. */
const WAIT_MAX_MS = 60_000

const slow = {
  ...base.test,
  testTimeout: 300_000,
  hookTimeout: 120_000,
  bail: 0,
  expect: { poll: { timeout: WAIT_MAX_MS, interval: 20 } },
  provide: { waitMaxMs: WAIT_MAX_MS },
  // Otherwise `npx vitest run` of one file would show a browser the pages of the last build.
  globalSetup: ['test/support/build-console.ts', 'test/support/global-setup.ts'],
}

/** Files of `npm test` whose property tests have all their runs here. test/support/runs.ts */
const PROPERTIES = [
  ...['audience/condition', 'audience/convergence', 'audience/delta', 'audience/events-export'],
  ...['audience/filters', 'audience/rare-filters'],
  ...['endpoints/erasure', 'endpoints/replay-erasure', 'http/fuzz', 'intake/event-keys'],
  ...['accounts/tenants', 'watch/notifications-histories'],
  ...['unit/ledger-line', 'unit/line-payload', 'unit/secret-keys'],
].map((name) => `test/${name}.test.ts`)

/** Tests that take minutes or most of the machine. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          ...slow,
          name: 'two at a time',
          include: ['test/faults/*.test.ts'],
          exclude: ALONE,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...slow,
          name: 'all runs of properties',
          include: PROPERTIES,
          env: { ALL_RUNS: 'true' },
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...slow,
          name: 'one at a time',
          include: ALONE,
          exclude: [],
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})

import { configDefaults, defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'test/faults/**'],
    globalSetup: 'test/support/global-setup.ts',
    // Two files at a time for two cores. Files share one PostgreSQL server but never a database.
    maxWorkers: 2,
    // Loading the service's modules takes about 1 s. No test changes the state of a module, so the files of a worker share them.
    isolate: false,
    // Only a failure takes longer than a few seconds, also on a machine with a third of the usual speed.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // .ci/run repeats a failed test once, because its machine is shared. The report marks such a test: find its cause.
    retry: Number(process.env.TEST_RETRIES ?? 0),
    // A condition that a test waits for: only a failure reaches the limit.
    expect: { poll: { timeout: 60_000, interval: 20 } },
  },
})

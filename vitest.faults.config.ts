import { defineConfig } from 'vitest/config'
import base from './vitest.config.ts'

/** Tests that take minutes or most of the machine run one file at a time. */
export default defineConfig({
  test: {
    ...base.test,
    include: ['test/faults/*.test.ts'],
    exclude: [],
    maxWorkers: 1,
    testTimeout: 300_000,
  },
})

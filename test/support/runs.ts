import fc from 'fast-check'

// A property that has failed ends with its counterexample, before the time of its test is over: each smaller one may wait in vain.
fc.configureGlobal({ interruptAfterTimeLimit: process.env.ALL_RUNS ? 240_000 : 40_000 })

/** Runs of a property: an eighth of them in `npm test`, all in `npm run test:faults`. */
export const runs = (all: number): number => (process.env.ALL_RUNS ? all : Math.ceil(all / 8))

/** Runs of a property: a quarter of them in `npm test`, all in `npm run test:faults`. */
export const runs = (all: number): number => (process.env.ALL_RUNS ? all : Math.ceil(all / 4))

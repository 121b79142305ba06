/** Runs of a property: an eighth of them in `npm test`, all in `npm run test:faults`. */
export const runs = (all: number): number => (process.env.ALL_RUNS ? all : Math.ceil(all / 8))

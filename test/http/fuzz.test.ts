/** Random requests to every route. npm run test:faults sends eight times as many. */
import { describeRandomRequests } from '../support/fuzz.ts'
import { runs } from '../support/runs.ts'

await describeRandomRequests(runs(800))

/** `npm run bench -- NAME [--smoke] [--against REF] [--record]`: every figure is a ratio of two measurements in one run on this machine. */
import { runAgainst } from './against.mjs'

const [name = 'intake', ...flags] = process.argv.slice(2)
const benches = {
  intake: () => import('./intake.mjs'),
  growth: () => import('./growth.mjs'),
  audience: () => import('./audience.mjs'),
  segments: () => import('./audience.mjs').then(({ segments }) => ({ run: segments })),
  endpoints: () => import('./endpoints.mjs'),
  conditions: () => import('./conditions.mjs'),
  loading: () => import('./loading.mjs'),
  exports: () => import('./exports.mjs'),
  workers: () => import('./workers.mjs'),
  replicas: () => import('./standbys.mjs').then(({ replicas }) => ({ run: replicas })),
  replication: () => import('./standbys.mjs').then(({ replication }) => ({ run: replication })),
  accounts: () => import('./accounts.mjs'),
  report: () => import('./report.mjs'),
}

if (!(name in benches)) {
  console.error(`unknown benchmark ${name}: there is ${Object.keys(benches).join(', ')}`)
  process.exit(2)
}
const against = flags.indexOf('--against')
if (against >= 0) {
  const [, ref] = flags.splice(against, 2)
  runAgainst(name, ref ?? 'HEAD', flags)
} else {
  const { run } = await benches[name]()
  await run({ smoke: flags.includes('--smoke'), record: flags.includes('--record') })
}

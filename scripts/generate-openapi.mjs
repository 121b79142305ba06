/** Writes docs/openapi.json from the route schemas of the built service: `npm run generate`. */
import { writeFileSync } from 'node:fs'
import { createApp } from '../dist/src/app.js'
import { readConfig } from '../dist/src/config/config.js'
import { NoDatabase } from '../dist/src/postgres/database.js'

const app = await createApp({ config: readConfig({ LOG_LEVEL: 'silent' }), database: new NoDatabase() })
await app.ready()
const file = new URL('../docs/openapi.json', import.meta.url)
writeFileSync(file, `${JSON.stringify(app.swagger(), null, 2)}\n`)
await app.close()

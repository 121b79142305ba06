/** The contents of package.json and the package's directory, for sources (`src/`) and the build (`dist/src/`). */
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(import.meta.url)

/** Where the publisher of this copy wants reports of defects. Absent until somebody publishes it. */
export type Bugs = string | { email?: string; url?: string }

export const {
  name: serviceName,
  version: serviceVersion,
  bugs,
} = require('#package.json') as { name: string; version: string; bugs?: Bugs }

/** The package's root directory, as a file URL that ends with a slash. */
export const PACKAGE_ROOT = new URL('./', pathToFileURL(require.resolve('#package.json')))

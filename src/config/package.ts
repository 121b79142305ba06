/** The contents of package.json and the package's directory, for sources (`src/`) and the build (`dist/src/`). */
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(import.meta.url)

export const { name: serviceName, version: serviceVersion } = require('#package.json') as {
  name: string
  version: string
}

/** The package's root directory, as a file URL that ends with a slash. */
export const PACKAGE_ROOT = new URL('./', pathToFileURL(require.resolve('#package.json')))

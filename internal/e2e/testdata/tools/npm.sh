cd npmp
npm ci --no-audit --no-fund
npm test
npx --no hello | grep hello

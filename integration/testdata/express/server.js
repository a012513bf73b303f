// Answers with what it was installed with: the versions of express and node.
const express = require("express");

const app = express();
app.get("/", (req, res) => res.json({ express: require("express/package.json").version, node: process.versions.node }));
app.listen(process.env.PORT);
